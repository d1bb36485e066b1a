"""Sites of a test with other samples than their files hold."""

from dataclasses import replace

from dprbft.site.data import SiteData
from dprbft.site.site import Client


def with_data(client: Client, data: SiteData) -> Client:
    """The site, which loads these samples."""
    return replace(client, read_data=lambda: data)
