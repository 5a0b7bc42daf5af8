"""`python -m anabranch.broker.cli`, for those who start nodes without a PATH."""

from anabranch.broker.cli.main import main

main()
