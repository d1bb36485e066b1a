"""A stand-in for Slurm's `sbatch`: runs a job's tasks, all at once, and waits for them.

Knows the options that the documents use, and no others. The folder $JOBS holds the exit codes of
each job's tasks; a job that depends on others begins only if they ended well.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

parser = argparse.ArgumentParser(allow_abbrev=False)
for name in ("parsable", "requeue"):
    parser.add_argument(f"--{name}", action="store_true")
for name in ("dependency", "job-name", "cpus-per-task", "mem", "time", "open-mode", "output"):
    parser.add_argument(f"--{name}")
parser.add_argument("--array", default="0-0")
parser.add_argument("--wrap")
parser.add_argument("script", nargs="?")

words = sys.argv[1:]
if script := parser.parse_args(words).script:
    lines = Path(script).read_text().splitlines()
    words = [x.removeprefix("#SBATCH ").strip() for x in lines if x.startswith("#SBATCH ")] + words
job = parser.parse_args(words)
jobs = Path(os.environ["JOBS"])
if job.dependency:
    kind, other = job.dependency.split(":")
    if kind != "afterok" or set((jobs / other).read_text().split()) != {"0"}:
        sys.exit(f"the job never starts: {job.dependency}")
command = ["bash", script] if script else ["sh", "-c", job.wrap]
first, last = map(int, job.array.split("-"))
running = []
for task in range(first, last + 1):
    slurm = {"SLURM_ARRAY_TASK_ID": str(task), "SLURM_CPUS_PER_TASK": job.cpus_per_task}
    with Path(job.output.replace("%a", str(task))).open("a") as log:
        running.append(subprocess.Popen(command, env=os.environ | slurm, stdout=log, stderr=log))
number = len(list(jobs.iterdir()))
(jobs / str(number)).write_text(" ".join(str(process.wait()) for process in running))
sys.stdout.write(f"{number}\n")
