"""The launcher ``slurm``: one heterogeneous job."""
