"""Networks on flat parameter vectors."""
