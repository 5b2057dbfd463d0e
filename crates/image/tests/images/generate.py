"""Writes the images of this folder and, as PPM or PGM, the pixels that Pillow decodes from each.

    pip install pillow==13.0.0 numpy; python3 generate.py
"""

import io
import zlib

import numpy
from PIL import Image, ImageOps

HEIGHT, WIDTH = 29, 37
rows, columns = numpy.mgrid[0:HEIGHT, 0:WIDTH].astype(float)
COLOUR = numpy.stack(
    [
        127 + 120 * numpy.sin(rows / 7 + columns / 11),
        255 * columns / (WIDTH - 1),
        127 + 110 * numpy.cos(rows / 5) * numpy.cos(columns / 9),
    ],
    axis=2,
).astype(numpy.uint8)
ALPHA = (255 * rows / (HEIGHT - 1)).astype(numpy.uint8)


def keep(name, encoded, pixels):
    with open(name, "wb") as file:
        file.write(encoded)
    kind = "pgm" if pixels.mode == "L" else "ppm"
    pixels.save(f"{name}.{kind}")


def encoded(image, format, **options):
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def opened(data, mode="RGB"):
    return Image.open(io.BytesIO(data)).convert(mode)


def scaled(values):
    """Numbers of 16 bits as bytes."""
    return Image.fromarray(numpy.rint(values / 257).astype(numpy.uint8))


def segments(jpeg):
    """The segments before the scan: (marker, start, end)."""
    at = 2
    while True:
        marker = jpeg[at + 1]
        end = at + 2 + int.from_bytes(jpeg[at + 2 : at + 4], "big")
        yield marker, at, end
        if marker == 0xDA:
            return
        at = end


def jpegs(colour):
    keep("subsampled.jpg", *both(encoded(colour, "JPEG", quality=90, subsampling="4:2:0")))
    keep("half.jpg", *both(encoded(colour, "JPEG", quality=90, subsampling="4:2:2")))
    keep("full.jpg", *both(encoded(colour, "JPEG", quality=95, subsampling="4:4:4")))
    keep("progressive.jpg", *both(encoded(colour, "JPEG", quality=90, progressive=True)))
    restarts = encoded(colour, "JPEG", quality=90, restart_marker_blocks=2)
    keep("restarts.jpg", *both(restarts))
    keep("trailing.jpg", *both(encoded(colour, "JPEG", quality=90) + b"\xff\xd8\xff more bytes"))
    keep("grey.jpg", *both(encoded(colour.convert("L"), "JPEG", quality=90), "L"))
    keep("rgb.jpg", *both(encoded(colour, "JPEG", quality=90, keep_rgb=True)))
    turned = Image.Exif()
    turned[0x0112] = 6
    keep("turned.jpg", *both(encoded(colour, "JPEG", quality=90, exif=turned)))
    inks = colour.convert("CMYK")
    inks.putdata([(c, m, y, (c + m) // 4) for c, m, y, _ in inks.getdata()])
    cmyk = encoded(inks, "JPEG", quality=95)
    keep("cmyk.jpg", *both(cmyk))
    # The same data read as luminance, two differences of colour and black.
    for marker, start, end in segments(cmyk):
        if marker == 0xEE:
            keep("ycck.jpg", *both(cmyk[: end - 1] + b"\x02" + cmyk[end:]))
            keep("plain_cmyk.jpg", *both(cmyk[:start] + cmyk[end:]))


def narrow_jpegs():
    """Of colours that change from pixel to pixel, which libjpeg does not spread where there are few."""
    noise = numpy.random.default_rng(0).integers(0, 256, (17, 5, 3), dtype=numpy.uint8)
    for width in range(1, 6):
        image = Image.fromarray(noise[:, :width])
        for subsampling in ["4:2:0", "4:2:2"]:
            data = encoded(image, "JPEG", quality=90, subsampling=subsampling)
            keep(f"narrow_{width}_{subsampling.replace(':', '')}.jpg", *both(data))


def both(data, mode="RGB"):
    return data, opened(data, mode)


def chunk(kind, content):
    body = kind + content
    return len(content).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


def png(depth, kind, rows, interlaced=False):
    """A PNG of rows of bytes, for what Pillow does not write."""
    if interlaced:
        raw = rows
    else:
        raw = b"".join(b"\0" + row for row in rows)
    header = WIDTH.to_bytes(4, "big") + HEIGHT.to_bytes(4, "big")
    header += bytes([depth, kind, 0, 0, int(interlaced)])
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def adam7(values):
    """The seven passes of an interlaced image of bytes [height, width, channels]."""
    passes = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
    raw = b""
    for top, left, down, right in passes:
        for row in values[top::down, left::right]:
            raw += b"\0" + row.tobytes()
    return raw


def orientations(colour):
    """Of each orientation one, with the pixels as Pillow turns them upright."""
    small = colour.crop((0, 0, 9, 5))
    for number in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = number
        options = {"JPEG": {"quality": 95, "subsampling": "4:4:4"}, "PNG": {}, "WEBP": {"lossless": True}}
        for format, name in [("JPEG", "jpg"), ("PNG", "png"), ("WEBP", "webp")]:
            if format != "JPEG" and number != 6:
                continue
            image = small.convert("L") if number == 7 else small
            data = encoded(image, format, exif=exif, **options[format] if number != 7 else {"quality": 95})
            upright = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
            keep(f"orientation_{number}.{name}", data, upright)


def pngs(colour):
    grey = colour.convert("L")
    keep("rgb.png", encoded(colour, "PNG"), colour)
    keep("grey.png", encoded(grey, "PNG"), grey)
    with_alpha = colour.copy()
    with_alpha.putalpha(Image.fromarray(ALPHA))
    keep("alpha.png", encoded(with_alpha, "PNG"), colour)
    grey_alpha = grey.copy()
    grey_alpha.putalpha(Image.fromarray(ALPHA))
    keep("grey_alpha.png", encoded(grey_alpha, "PNG"), grey)
    palette = colour.quantize(13)
    keep("palette.png", encoded(palette, "PNG"), palette.convert("RGB"))
    keep("see_through.png", encoded(palette, "PNG", transparency=3), palette.convert("RGB"))
    bits = grey.convert("1")
    keep("bits.png", encoded(bits, "PNG"), bits.convert("L"))
    # 16 bits, high bytes first. Pillow cuts or clips them.
    deep = numpy.stack([COLOUR, 255 - COLOUR], axis=3)
    keep("deep.png", png(16, 2, [row.tobytes() for row in deep]), scaled(256 * COLOUR.astype(int) + 255 - COLOUR))
    deep_grey = numpy.stack([numpy.asarray(grey), ALPHA], axis=2)
    keep("deep_grey.png", png(16, 0, [row.tobytes() for row in deep_grey]), scaled(256 * numpy.asarray(grey, int) + ALPHA))
    keep("interlaced.png", png(8, 2, adam7(COLOUR), interlaced=True), colour)


def webps(colour):
    keep("lossy.webp", *both(encoded(colour, "WEBP", quality=85)))
    keep("lossless.webp", encoded(colour, "WEBP", lossless=True), colour)
    with_alpha = colour.copy()
    with_alpha.putalpha(Image.fromarray(ALPHA))
    keep("alpha.webp", *both(encoded(with_alpha, "WEBP", quality=85, exact=True)))
    keep("lossless_alpha.webp", encoded(with_alpha, "WEBP", lossless=True, exact=True), colour)
    frames = [colour.rotate(180)]
    moving = encoded(colour, "WEBP", lossless=True, save_all=True, append_images=frames)
    keep("moving.webp", moving, colour)


def pnm(kind, most, values):
    """A binary PNM, for what Pillow does not write."""
    return b"P%d\n# made\n%d %d\n%d\n" % (kind, WIDTH, HEIGHT, most) + values.tobytes()


def others(colour):
    """BMP, GIF, PNM and TIFF."""
    grey = colour.convert("L")
    bits = grey.convert("1")
    palette = colour.quantize(13)
    with_alpha = colour.copy()
    with_alpha.putalpha(Image.fromarray(ALPHA))
    deep = numpy.stack([255 - COLOUR, COLOUR], axis=3)
    keep("rgb.bmp", encoded(colour, "BMP"), colour)
    keep("palette.bmp", encoded(palette, "BMP"), palette.convert("RGB"))
    keep("alpha.bmp", *both(encoded(with_alpha, "BMP")))
    keep("palette.gif", *both(encoded(colour, "GIF")))
    frames = [colour.rotate(180)]
    keep("moving.gif", *both(encoded(colour, "GIF", save_all=True, append_images=frames)))
    keep("rgb.ppm", encoded(colour, "PPM"), colour)
    keep("grey.pgm", encoded(grey, "PPM"), grey)
    keep("bits.pbm", encoded(bits, "PPM"), bits.convert("L"))
    keep("few.ppm", *both(pnm(6, 15, COLOUR // 16)))
    text = "\n".join(" ".join(map(str, row)) for row in numpy.asarray(grey).tolist())
    keep("text.pgm", f"P2 {WIDTH} {HEIGHT} 255\n{text}\n".encode(), grey)
    for name, compression in [("rgb", None), ("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"), ("packed", "packbits")]:
        keep(f"{name}.tif", encoded(colour, "TIFF", compression=compression), colour)
    keep("grey.tif", encoded(grey, "TIFF"), grey)
    keep("bits.tif", encoded(bits, "TIFF", compression="group4"), bits.convert("L"))
    keep("alpha.tif", encoded(with_alpha, "TIFF"), colour)
    keep("pages.tif", encoded(colour, "TIFF", save_all=True, append_images=frames), colour)
    deep_grey = numpy.asarray(grey).astype(numpy.uint16) * 200
    keep("deep_grey.tif", encoded(Image.fromarray(deep_grey), "TIFF"), scaled(deep_grey))
    keep("float.tif", encoded(Image.fromarray(rows.astype(numpy.float32)), "TIFF"), grey)
    keep("palette.tif", encoded(palette, "TIFF"), palette.convert("RGB"))
    keep("jpeg.tif", *both(encoded(colour, "TIFF", compression="jpeg", quality=95)))
    keep("cmyk.tif", *both(encoded(colour.convert("CMYK"), "TIFF")))


if __name__ == "__main__":
    picture = Image.fromarray(COLOUR)
    jpegs(picture)
    narrow_jpegs()
    orientations(picture)
    pngs(picture)
    webps(picture)
    others(picture)
