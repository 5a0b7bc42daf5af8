"""The command line `anabranch`.

`main` knows the commands by name and imports only the one that is run. So `--help` answers at once,
and a node carries nothing that it does not need.
"""
