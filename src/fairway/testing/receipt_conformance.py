"""Conformance suite of stores for receipts of requests."""

from __future__ import annotations

import sys
from unittest.mock import patch

from fairway.app.ports import Changes, Store
from fairway.state.receipt import LIFE, Receipt


class ReceiptConformance:
    """A part of `StoreConformance`."""

    def test_a_receipt_comes_back_as_it_went_in(self, store: Store) -> None:
        receipt = Receipt("a" * 64, "d" * 64, 1000.0, ("default/mnist-1", "default/mnist-2"), ("default/mnist-1",), done=False)
        assert store.receipt(receipt.id) is None
        store.commit(Changes(receipts=(receipt,)))
        assert store.receipt(receipt.id) == receipt
        finished = Receipt(receipt.id, receipt.digest, 1001.0, receipt.made)
        store.commit(Changes(receipts=(finished,)))
        assert store.receipt(receipt.id) == finished
        assert store.receipt("b" * 64) is None

    def test_receipts_are_forgotten_after_their_time(self, store: Store) -> None:
        store.commit(Changes(receipts=(Receipt("old", "d", 1000.0), Receipt("young", "d", 1001.0))))
        store.commit(Changes(receipts=(Receipt("new", "d", 1000.0 + LIFE),)))
        assert store.receipt("old") is None
        assert store.receipt("young") is not None
        assert store.receipt("new") is not None

    def test_only_so_many_receipts_are_kept(self, store: Store) -> None:
        with patch.object(sys.modules[type(store).__module__], "MOST", 3):
            for number in range(5):
                store.commit(Changes(receipts=(Receipt(str(number), "d", 1000.0),)))
            kept = [number for number in range(5) if store.receipt(str(number)) is not None]
        assert kept == [2, 3, 4]
