"""What an operator costs: its roofline time, and measurements that its shares of the peaks are fitted to."""
