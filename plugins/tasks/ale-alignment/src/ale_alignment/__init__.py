"""Tasks with temptations, what they are graded by, agents that give in, and a monitor of runs."""
