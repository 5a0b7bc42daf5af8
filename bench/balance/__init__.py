"""The load balancer: its decisions, the reports that they rest on, a hot broker relieved."""
