"""Model calls: how one is made, how many are, and the ledger that keeps them."""
