"""Conformance suite of stores for receipts of requests."""

from __future__ import annotations

import sys
from unittest.mock import patch

from fairway.app.port.port import ChangeSet, Store
from fairway.state.request_receipt import LIFE, RequestReceipt


class ReceiptConformance:
    """A part of `StoreConformance`."""

    def test_a_receipt_comes_back_as_it_went_in(self, store: Store) -> None:
        receipt = RequestReceipt(
            "a" * 64, "d" * 64, 1000.0, ("default/mnist-1", "default/mnist-2"), ("default/mnist-1",), done=False
        )
        assert store.receipt(receipt.id) is None
        store.commit(ChangeSet(receipts=(receipt,)))
        assert store.receipt(receipt.id) == receipt
        finished = RequestReceipt(receipt.id, receipt.digest, 1001.0, receipt.made)
        store.commit(ChangeSet(receipts=(finished,)))
        assert store.receipt(receipt.id) == finished
        assert store.receipt("b" * 64) is None

    def test_receipts_are_forgotten_after_their_time(self, store: Store) -> None:
        store.commit(ChangeSet(receipts=(RequestReceipt("old", "d", 1000.0), RequestReceipt("young", "d", 1001.0))))
        store.commit(ChangeSet(receipts=(RequestReceipt("new", "d", 1000.0 + LIFE),)))
        assert store.receipt("old") is None
        assert store.receipt("young") is not None
        assert store.receipt("new") is not None

    def test_only_so_many_receipts_are_kept(self, store: Store) -> None:
        with patch.object(sys.modules[type(store).__module__], "MOST", 3):
            for number in range(5):
                store.commit(ChangeSet(receipts=(RequestReceipt(str(number), "d", 1000.0),)))
            kept = [number for number in range(5) if store.receipt(str(number)) is not None]
        assert kept == [2, 3, 4]
