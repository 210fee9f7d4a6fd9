"""One job becomes many: a catalogue is read page by page, and a last job waits until all pages are there."""

from pydantic import BaseModel, Field

from holdfast import App, Collection, Context, Snooze, Upsert

app = App()


class Catalogue(BaseModel):
    name: str
    pages: int = Field(ge=1, le=1000)


class Page(BaseModel):
    catalogue: str
    number: int


@app.job(key="name", collections=[Collection("catalogues", key="name")])
async def import_catalogue(catalogue: Catalogue, ctx: Context) -> None:
    """All pages and the last job are submitted in the commit that ends this job: all of them, or none."""
    for number in range(1, catalogue.pages + 1):
        ctx.submit(import_page, Page(catalogue=catalogue.name, number=number))
    ctx.submit(publish_catalogue, catalogue)


@app.job(key=lambda page: f"{page.catalogue}:{page.number}", attempts=5)
async def import_page(page: Page, ctx: Context) -> None:
    """Counts in the commit that ends this job: each page once, however often it was tried."""
    ctx.write(Upsert("catalogues", page.catalogue, add={"imported": 1}))


@app.job(key="name", ttl="1d")
async def publish_catalogue(catalogue: Catalogue, ctx: Context) -> str | Snooze:
    """Waits for the pages. A snooze costs no attempt, and the ttl ends the wait if a page never comes."""
    found = await ctx.get("catalogues", catalogue.name) or {"imported": 0}
    ctx.progress(found["imported"], catalogue.pages)
    if found["imported"] < catalogue.pages:
        return Snooze("5s", f"{found['imported']} of {catalogue.pages} pages")
    ctx.write(Upsert("catalogues", catalogue.name, {"published": True}))
    return f"{catalogue.name}: {catalogue.pages} pages"
