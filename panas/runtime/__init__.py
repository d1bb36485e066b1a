"""What everything else stands on: errors, seeds, files, journals, worker processes."""
