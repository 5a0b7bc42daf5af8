"""`python -m anabranch.cli`, for those who start nodes without a PATH."""

from anabranch.cli.main import main

main()
