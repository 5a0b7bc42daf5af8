"""What commands share: flags, numbers and output, questions to a node, errors in words."""
