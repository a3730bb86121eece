"""Power draw of hardware and emissions of grids, by name: coarse averages, for want of better data.

From Cloud Carbon Footprint (Thoughtworks, Apache-2.0; github.com/cloud-carbon-footprint: its
methodology page, `AwsFootprintEstimationConstants.ts`, `GcpFootprintEstimationConstants.ts`), read
in November 2026. Watts were derived there from SPECpower results. Grid factors are averages of a
year, from about 2020, for the place and not for purchased contracts. Editions differ by a tenth and
more (eu-west-1 is 279 or 316): where it matters, configure your own figure, a series or a live
source.
"""

from typing import Final

# CPU families: milliwatts of a vCPU, idle and busy.
CPUS: Final[dict[str, tuple[int, int]]] = {
    "broadwell": (710, 3_690),
    "cascade-lake": (640, 3_970),
    "epyc-1": (820, 2_550),
    "epyc-2": (470, 1_690),
    "graviton-2": (470, 1_690),
    "haswell": (1_000, 4_740),
    "skylake": (650, 4_260),
}
# Clouds: the same for the average machine, and their power usage effectiveness, thousandths.
CLOUDS: Final[dict[str, tuple[int, int, int]]] = {
    "aws": (740, 3_500, 1_135),
    "azure": (780, 3_760, 1_185),
    "gcp": (710, 4_260, 1_100),
}
# Regions: milligrams of CO2e a kilowatt-hour.
GRIDS: Final[dict[str, int]] = {
    "aws:ap-east-1": 710_000,
    "aws:ap-northeast-1": 466_000,
    "aws:ap-south-1": 708_000,
    "aws:ap-southeast-1": 408_000,
    "aws:eu-central-1": 311_000,
    "aws:eu-north-1": 9_000,
    "aws:eu-west-1": 279_000,
    "aws:eu-west-2": 225_000,
    "aws:eu-west-3": 51_000,
    "aws:us-east-1": 379_000,
    "aws:us-east-2": 411_000,
    "aws:us-west-2": 322_000,
    "gcp:asia-northeast1": 554_000,
    "gcp:asia-southeast1": 493_000,
    "gcp:europe-north1": 133_000,
    "gcp:europe-west1": 212_000,
    "gcp:europe-west2": 231_000,
    "gcp:europe-west3": 293_000,
    "gcp:europe-west4": 410_000,
    "gcp:europe-west6": 87_000,
    "gcp:us-central1": 454_000,
    "gcp:us-east1": 480_000,
    "gcp:us-west1": 78_000,
}
