"""The words of the generated shop: its assortment, and names of people."""

# Number of items and base price by category.
CATEGORIES = {
    "dongle": (211, 30.0),
    "contraption": (206, 250.0),
    "instrument": (239, 44.0),
    "tool": (222, 25.0),
    "apparatus": (207, 300.0),
    "mechanism": (225, 15.0),
    "widget": (212, 3.0),
    "device": (216, 50.0),
    "gadget": (233, 89.0),
    "module": (227, 100.0),
}
# The factor by which a word in the name changes the price.
ADJECTIVES = {
    "": 1.0,
    "reflective": 1.3,
    "industrial-strength": 1.2,
    "aerodynamic": 1.4,
    "fuzzy": 1.0,
    "rechargable": 1.3,
    "extra-strength": 1.0,
    "prize-winning": 3.0,
    "analog": 0.9,
    "matte": 1.25,
    "organic": 1.5,
    "glossy": 1.2,
    "miniature": 1.1,
    "digital": 1.1,
}
MODIFIERS = {
    "": 1.0,
    "storage_unit": 2.5,
    "charger": 0.2,
    "opener": 0.5,
    "refill": 0.8,
    "wrapper": 0.4,
    "how-to-manual": 0.0,
    "cleaner": 0.6,
    "carrying_case": 0.6,
    "warmer": 1.1,
}
FIRST_NAMES = (
    "Ada Ben Chen Dina Emma Felipe Grace Hosna Ivan Janelle Kofi Lena Maryam Noah "
    "Olga Peter Quinn Riya Sofia Tomas Uma Viktor Wanda Ximena Yusuf Zoe Mateo"
).split()
LAST_NAMES = (
    "Anand Brown Chen Dhawan Eriksson Fischer Gruber Hassan Ito Jones Khoury Kowalski "
    "Kumar Lopez McRobot Novak O'Brien Powell Quist Rossi Sokolov Tanaka Ueda Vega "
    "Weber Young Zhang"
).split()
MAIL_HOSTS = "mail.net mail.com yahoo.edu gmail.com inbox.biz earthlink.edu yahoo.org".split()
