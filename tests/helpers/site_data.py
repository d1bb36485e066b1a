"""Sites of a test with other samples than their files hold."""

from dataclasses import replace

from dprbft.site.data import SiteData
from dprbft.site.site import Site


def with_data(site: Site, data: SiteData) -> Site:
    """The site, which loads these samples."""
    return replace(site, read_data=lambda: data)
