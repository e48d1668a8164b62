"""The maintainer's tools behind the simulator's shares of the peaks: measurements, the fit, what is recorded for it."""
