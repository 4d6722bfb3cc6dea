"""What several packages share: environment variables, intervals, processes, processors, seeds."""
