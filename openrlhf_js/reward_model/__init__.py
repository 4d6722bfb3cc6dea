"""Bradley-Terry reward models: their preference data, their checkpoints, their scores.

Plain torch and transformers: what a file holds, what a checkpoint is, what a text scores.
"""
