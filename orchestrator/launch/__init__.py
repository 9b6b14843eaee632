"""Studies as jobs: written and submitted (`ancre launch`), read from anywhere (`ancre logs`), ended (`ancre stop`).

What runs a job (this machine, a Ray cluster, SLURM, Kubernetes) is a file here each. A job is a folder that holds all
it needs: the study, the code and Ray's token. Whatever is edited later does not change it.
"""
