"""The programs of the laboratory, one module each."""
