"""One HTML file about one or more runs. A reader: it writes nothing but the report, and is never
made inside a job."""
