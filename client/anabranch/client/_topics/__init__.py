"""What a client knows of nodes and topics: layouts as they are pushed, and the traffic it tells."""
