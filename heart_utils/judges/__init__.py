"""What a judge rewards: position, own family, halo, and whether it says the same again."""
