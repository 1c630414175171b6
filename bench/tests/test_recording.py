"""The picture of the README is drawn from its recording, and says when it does not show the real speed.

    python3 -m unittest discover --start-directory bench/tests
"""

import sys
import unittest
import xml.etree.ElementTree
from pathlib import Path

BENCH = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(BENCH))
import recording
from harness import animation


class Picture(unittest.TestCase):
    def test_the_picture_is_what_the_recording_draws(self):
        drawn = animation.Picture(recording.recorded()).svg()
        self.assertEqual(drawn, recording.IMAGE.read_text(), "run bench/recording.py --draw")

    def test_the_picture_is_xml_and_small(self):
        xml.etree.ElementTree.parse(recording.IMAGE)
        self.assertLess(recording.IMAGE.stat().st_size, 300_000)

    def test_the_speed_is_said_where_it_is_not_the_real_one(self):
        record = recording.recorded()
        self.assertGreater(record["quick"]["factor"], 1)
        self.assertIn(f"shown {record['quick']['factor']} times faster", recording.IMAGE.read_text())


class Quick(unittest.TestCase):
    def test_only_the_quick_part_is_shorter(self):
        quick = animation.Quick(10, 70, 12)
        self.assertEqual([quick.picture_time(at) for at in (0, 10, 40, 70, 75)], [0, 10, 12.5, 15, 20])

    def test_the_clock_of_the_picture_shows_the_real_time(self):
        quick = animation.Quick(10, 70, 12)
        for seconds in (0, 5, 10, 11, 40, 70, 75):
            self.assertAlmostEqual(quick.clock_time(quick.picture_time(seconds)), seconds)


class Spans(unittest.TestCase):
    def test_a_text_is_shown_until_its_row_changes(self):
        screens = [(0.0, "a", ["$", ""]), (1.0, "a", ["$ ls", ""]), (2.0, "a", ["$ ls", "linux"]), (3.0, "a", ["linux"])]
        self.assertEqual(list(animation.spans(screens)),
                         [(0, "$", 0.0, 1.0), (0, "$ ls", 1.0, 3.0), (1, "linux", 2.0, 3.0), (0, "linux", 3.0, None)])


if __name__ == "__main__":
    unittest.main()
