"""The columns of FOCUS 1.2, as in its specification, and our additional columns.

Source: FinOps-Open-Cost-and-Usage-Spec/FOCUS_Spec on GitHub, tag v1.2, specification/columns.
"""

from dataclasses import dataclass
from typing import Final, Literal

VERSION: Final = "1.2"

Kind = Literal["text", "decimal", "time", "json"]
Level = Literal["mandatory", "recommended", "conditional", "custom"]


@dataclass(frozen=True, slots=True)
class Column:
    """The specification of one column.

    Attributes:
        kind: its data type.
        level: whether the column is required.
        is_nullable: whether a cell may be empty, in at least some rows.
        allowed: the only values; empty: any value.
    """

    name: str
    kind: Kind
    level: Level
    is_nullable: bool = True
    allowed: frozenset[str] = frozenset()


def _of(level: Level, kind: Kind, *names: str, is_nullable: bool = True) -> list[Column]:
    return [Column(name, kind, level, is_nullable) for name in names]


def _one_of(level: Level, name: str, *allowed: str, is_nullable: bool = False) -> Column:
    return Column(name, "text", level, is_nullable, frozenset(allowed))


_COSTS: Final = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
_TIMES: Final = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
_COMMITMENT: Final = tuple(f"CommitmentDiscount{each}" for each in ("Id", "Name", "Type", "Unit"))
_PRICED: Final = tuple(
    f"PricingCurrency{each}" for each in ("ContractedUnitPrice", "EffectiveCost", "ListUnitPrice")
)
_CHARGES: Final = ("Usage", "Purchase", "Tax", "Credit", "Adjustment")
_CATEGORIES: Final = (
    *("AI and Machine Learning", "Analytics", "Business Applications", "Compute", "Databases"),
    *("Developer Tools", "Identity", "Integration", "Internet of Things"),
    *("Management and Governance", "Media", "Migration", "Mobile", "Multicloud", "Networking"),
    *("Other", "Security", "Storage", "Web"),
)

# All 57 of them, by name.
FOCUS: Final[dict[str, Column]] = {
    column.name: column
    for column in (
        *_of("mandatory", "decimal", *_COSTS, is_nullable=False),
        *_of("mandatory", "time", *_TIMES, is_nullable=False),
        *_of("mandatory", "text", "BillingAccountId", "BillingCurrency", is_nullable=False),
        *_of("mandatory", "text", "InvoiceIssuerName", "ProviderName", is_nullable=False),
        *_of("mandatory", "text", "PublisherName", "ServiceName", is_nullable=False),
        *_of("mandatory", "text", "BillingAccountName", "ChargeDescription", "PricingUnit"),
        *_of("mandatory", "decimal", "PricingQuantity"),
        _one_of("mandatory", "ChargeCategory", *_CHARGES),
        _one_of("mandatory", "ChargeClass", "Correction", is_nullable=True),
        _one_of("mandatory", "ServiceCategory", *_CATEGORIES),
        *_of("recommended", "text", "AvailabilityZone", "InvoiceId"),
        *_of("recommended", "text", "ServiceSubcategory", is_nullable=False),
        _one_of("recommended", "ChargeFrequency", "One-Time", "Recurring", "Usage-Based"),
        *_of("conditional", "text", "BillingAccountType", is_nullable=False),
        *_of("conditional", "text", "CapacityReservationId", *_COMMITMENT),
        _one_of("conditional", "CapacityReservationStatus", "Used", "Unused", is_nullable=True),
        _one_of("conditional", "CommitmentDiscountStatus", "Used", "Unused", is_nullable=True),
        _one_of("conditional", "CommitmentDiscountCategory", "Spend", "Usage", is_nullable=True),
        *_of("conditional", "decimal", "CommitmentDiscountQuantity", "ConsumedQuantity"),
        *_of("conditional", "decimal", "ContractedUnitPrice", "ListUnitPrice", *_PRICED),
        *_of("conditional", "text", "ConsumedUnit", "PricingCurrency", "RegionId", "RegionName"),
        *_of("conditional", "text", "ResourceId", "ResourceName", "ResourceType"),
        *_of("conditional", "text", "SkuId", "SkuMeter", "SkuPriceId"),
        *_of("conditional", "text", "SubAccountId", "SubAccountName", "SubAccountType"),
        *_of("conditional", "json", "SkuPriceDetails", "Tags"),
        _one_of(
            *("conditional", "PricingCategory", "Standard", "Dynamic", "Committed", "Other"),
            is_nullable=True,
        ),
    )
}

CUSTOM_PREFIX: Final = "x_"

CUSTOM: Final = (
    *_of("custom", "decimal", "x_CarbonEmbodiedG", "x_CarbonOperationalG"),
    *_of("custom", "text", "x_Corrects"),
    *_of("custom", "decimal", "x_CpuSeconds", "x_EnergyKwh"),
    *_of("custom", "text", "x_ExecSite"),
    *_of("custom", "decimal", "x_GridIntensityGPerKwh"),
    *_of("custom", "text", "x_Group", "x_JobName", "x_OriginSite"),
    *_of("custom", "decimal", "x_PeakMemoryBytes"),
    *_of("custom", "text", "x_PriceClass"),
    *_of("custom", "decimal", "x_Runs"),
    *_of("custom", "text", "x_State", "x_TariffVersion"),
    *_of("custom", "decimal", "x_Tasks"),
    *_of("custom", "text", "x_User", "x_Window"),
)

# Without the columns for features that gridfed lacks: zones, capacity reservations, more than one
# type of account. There are no invoices either, but that column is recommended, and null.
_LEFT_OUT: Final = (
    *("AvailabilityZone", "CapacityReservationId", "CapacityReservationStatus"),
    *("BillingAccountType", "SubAccountType"),
)

EXPORTED: Final[tuple[Column, ...]] = (
    *(FOCUS[name] for name in sorted(FOCUS) if name not in _LEFT_OUT),
    *CUSTOM,
)
