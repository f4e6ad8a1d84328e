"""Programs of the small spec; only their places are looked at here."""
