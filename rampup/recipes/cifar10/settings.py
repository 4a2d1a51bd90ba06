"""What the settings of the cifar10 recipe may be, and what they need: looked at before anything is
submitted.

The command line calls `check` and model.py takes the names from here; so this imports no framework.
"""

from rampup.recipe import Needs, Refused, Settings, known_weights, nearest, weights_name

SIZE = 32
"""Pixels of an image, in both directions."""
IMAGES = {"samples": 50_000, "validation": 10_000}
OWN = ("small", "resnet18", "mlp")
NAMES = """
    convnext_base convnext_large convnext_small convnext_tiny densenet121 densenet161 densenet169 densenet201
    efficientnet_b0 efficientnet_b1 efficientnet_b2 efficientnet_b3 efficientnet_b4 efficientnet_b5 efficientnet_b6
    efficientnet_b7 efficientnet_v2_l efficientnet_v2_m efficientnet_v2_s mnasnet0_5 mnasnet0_75 mnasnet1_0 mnasnet1_3
    mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_16gf regnet_x_1_6gf regnet_x_32gf regnet_x_3_2gf
    regnet_x_400mf regnet_x_800mf regnet_x_8gf regnet_y_128gf regnet_y_16gf regnet_y_1_6gf regnet_y_32gf regnet_y_3_2gf
    regnet_y_400mf regnet_y_800mf regnet_y_8gf resnet101 resnet152 resnet34 resnet50 resnext101_32x8d resnext101_64x4d
    resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5 shufflenet_v2_x2_0 squeezenet1_0
    squeezenet1_1 swin_b swin_s swin_t swin_v2_b swin_v2_s swin_v2_t vgg11 vgg11_bn vgg13 vgg13_bn vgg16 vgg16_bn vgg19
    vgg19_bn wide_resnet101_2 wide_resnet50_2
"""
OF_TORCHVISION = NAMES.split()
"""Its models for classification that take small images and give one answer, so no ViT and no
Inception."""


def check(settings: Settings) -> Needs:
    """Refuse what can't be; name what these settings need besides the images and torch."""
    for name, there_are in IMAGES.items():
        if not 1 <= settings[name] <= there_are:
            raise Refused(
                f"{name}={settings[name]}: there are {there_are} images", f"{name}={there_are}"
            )
    crop, cutout, width, smoothing = (
        settings.crop,
        settings.cutout,
        settings.width,
        settings.label_smoothing,
    )
    if not (0 <= crop < SIZE and 0 <= cutout <= SIZE):
        raise Refused(
            f"crop={crop} cutout={cutout}: an image has {SIZE} x {SIZE} pixels", "crop=4 cutout=8"
        )
    if width < 1 or not 0 <= smoothing <= 1:
        given = f"width={width} label_smoothing={smoothing}"
        raise Refused(
            f"{given}: a width is 1 or more, a smoothing from 0 to 1",
            "width=24 label_smoothing=0.1",
        )
    return needs(settings.arch, settings.pretrained)


def needs(arch: str, pretrained: bool) -> Needs:
    if arch not in OWN and arch not in OF_TORCHVISION:
        raise Refused(
            f"arch={arch}: there is no network of that name for images of {SIZE}x{SIZE} pixels",
            nearest(arch, [*OWN, *OF_TORCHVISION]),
        )
    if pretrained and arch not in known_weights():
        raise Refused(
            f"pretrained=true: no weights of arch={arch} are known",
            f"arch={' or arch='.join(known_weights())}",
        )
    return Needs(
        modules={} if arch in OWN else {"torchvision": f"arch={arch}"},
        data=(weights_name(arch),) if pretrained else (),
    )
