"""What is raised for a template that can't be read or rendered."""

from gpuscale.core.errors import QueryError


class TemplateError(QueryError):
    """A template is wrong, uses what is not served, or fails on the values it was given."""
