"""What happens beside the steps of a run; import these modules where a run begins, as they load transformers."""
