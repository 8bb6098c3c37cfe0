"""The collector's HTTP interface: every route in one table, from which the server and its OpenAPI document are made."""
