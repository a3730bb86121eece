"""A gateway that is asked for its status each second does not read its files each second."""

import os
from dataclasses import replace
from pathlib import Path

from federation.clocks import UtcS
from gateway.checking.findings import Finding
from gateway.checking.kept import RENEWED_S, KeptFindings
from gateway.config.federation import FederationConfig
from gateway.config.site import SiteConfig


def test_files_are_read_again_when_one_changes_or_after_a_minute(tmp_path: Path) -> None:
    looks: list[UtcS] = []

    def look(_config: SiteConfig, utc_s: UtcS) -> list[Finding]:
        looks.append(utc_s)
        return []

    certificate = tmp_path / "certificate.pem"
    config = replace(
        SiteConfig(),
        tls_certificate_file=str(certificate),
        state=str(tmp_path),
        federation=FederationConfig(),
    )
    kept = KeptFindings(look)
    for at_s in (1.0, 2.0, 3.0):
        kept.of(config, UtcS(at_s))
    assert looks == [1.0]
    certificate.write_text("there")
    kept.of(config, UtcS(4.0))
    assert looks == [1.0, 4.0]
    os.utime(certificate, ns=(1, 1))
    kept.of(config, UtcS(5.0))
    assert looks[2:] == [5.0]
    config.trust_path.mkdir(parents=True)
    (config.trust_path / "trust.json").write_text("{}")
    kept.of(config, UtcS(6.0))
    assert looks[3:] == [6.0]
    (config.trust_path / "trust.json").write_text("{ }")
    kept.of(config, UtcS(6.5))
    assert looks[4:] == [6.5]
    kept.of(replace(config, name="other"), UtcS(7.0))
    assert looks[5:] == [7.0]
    kept.of(config, UtcS(8.0))
    kept.of(config, UtcS(8.0 + RENEWED_S - 0.1))
    assert looks[6:] == [8.0]
    kept.of(config, UtcS(8.0 + RENEWED_S))
    assert looks[7:] == [8.0 + RENEWED_S]
    kept.of(config, UtcS(1.0))  # the clock was set back
    assert looks[8:] == [1.0]
