"""The checks of ``holdfast doctor``. Each gives a finding, and advice where something is wrong."""
