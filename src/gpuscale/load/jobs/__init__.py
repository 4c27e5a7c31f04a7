"""Load of Jobs on a cluster: N of one manifest, followed from their creation to their end, and removed."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.load.jobs.chronicle import Chronicle
    from gpuscale.load.jobs.cleaning import clean
    from gpuscale.load.jobs.result import (
        job_document,
        job_faults_text,
        job_text,
        job_timeline,
        job_totals,
        junit_text,
    )
    from gpuscale.load.jobs.running import JobPlan, JobRun, JobRunner, moments
    from gpuscale.load.jobs.template import JobTemplate, read_template, sample_template
else:
    __getattr__ = door(__name__)

__all__ = [
    "Chronicle",
    "JobPlan",
    "JobRun",
    "JobRunner",
    "JobTemplate",
    "clean",
    "job_document",
    "job_faults_text",
    "job_text",
    "job_timeline",
    "job_totals",
    "junit_text",
    "moments",
    "read_template",
    "sample_template",
]
