"""Linear heads on a common representation: from moments, by DP-SGD, and averages of several."""
