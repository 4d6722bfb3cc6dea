"""What every room shares: settings, records on disk, files, the console."""
