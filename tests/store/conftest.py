import pytest

pytest.register_assert_rewrite("contracts.store_contract", "contracts.journal_contract")
