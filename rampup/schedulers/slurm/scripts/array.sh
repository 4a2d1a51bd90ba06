#!/bin/bash
# @count@ runs of the study @study@, one for each task of this array. Written by rampup @version@.
#@put directives

# The task becomes the job script of its run. exec: that script is then the batch job itself, so it is requeued alone.
exec bash -l @folder@/"$SLURM_ARRAY_TASK_ID"/job.sh
