"""What an auto-scale policy would have done under loads of the past."""
