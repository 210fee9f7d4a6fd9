"""Files of documents in a folder, as the wiring builds them."""

from __future__ import annotations

from holdfast.blobs.folder import StreamedFolderBlobs
from holdfast.features.documents.files import RESULTS, UPLOADS, Files


def folder_files(root):
    return Files(StreamedFolderBlobs(root, (UPLOADS, RESULTS)))
