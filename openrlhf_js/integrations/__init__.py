"""The estimators in other training stacks, each in a file that imports its stack: verl, TRL."""
