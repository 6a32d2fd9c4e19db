"""What replies say and do, and how conversations go by turn."""
