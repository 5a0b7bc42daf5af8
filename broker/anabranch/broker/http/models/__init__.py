"""Bodies of requests and answers, by the field names of Pulsar's REST."""
