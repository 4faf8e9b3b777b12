"""The experiments of Si, Oates, Duncan, Carin and Briol, through zerovar's public interface."""
