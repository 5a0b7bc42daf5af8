"""The common parts of commands: flags, numbers and output, questions to a node, errors in words."""
