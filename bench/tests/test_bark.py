"""The times of writes in a trace, and which rounds of a setting count."""

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from harness import bark_report, block_trace, report

TRACE = """# tracer: nop
    jbd2/loop6-8-123     [000] .....    10.000000: block_bio_queue: 7,5 WSM 100 + 8 [jbd2/loop6-8]
    jbd2/loop6-8-123     [000] .....    10.000100: block_bio_queue: 7,5 WSM 108 + 8 [jbd2/loop6-8]
 kworker/u9:2-loop5-9    [001] ..s..    10.004000: block_rq_complete: 7,5 WSM () 100 + 16 be,0,3 [0]
    jbd2/loop6-8-123     [000] .....    10.005000: block_bio_queue: 7,5 FWFSM 116 + 8 [jbd2/loop6-8]
 kworker/u9:2-loop5-9    [001] ..s..    10.006000: block_rq_complete: 7,5 FF () 18446744073709551615 + 0 none,0,0 [0]
 kworker/u9:2-loop5-9    [001] ..s..    10.007000: block_rq_complete: 7,5 WSM () 116 + 8 be,0,3 [0]
 kworker/u9:2-loop5-9    [001] d.s1.    10.014000: block_rq_complete: 7,5 WSM () 116 + 0 be,0,3 [0]
    python3-77           [001] .....    10.015000: block_bio_queue: 7,5 RA 0 + 8 [python3]
 kworker/u9:2-loop5-9    [001] ..s..    10.020000: block_rq_complete: 7,5 W () 900 + 8 none,0,0 [0]
"""


class Trace(unittest.TestCase):
    def test_a_write_is_timed_from_its_submission_to_its_end(self):
        self.assertEqual([round(ms, 3) for ms in block_trace.times(TRACE)], [4.0, 9.0])


class Rounds(unittest.TestCase):
    def setUp(self):
        self.results = report.Results()

    def add(self, repetition, rejected=False, failed=None, **means):
        for peer, mean_ms in means.items():
            self.results.add(storage="here", job="job", peer=peer, repetition=repetition, failed=failed, wrong=[],
                             details={"mean_ms": mean_ms, "rejected": rejected, "load_average": 0.5})

    def rounds(self):
        return bark_report.Rounds(self.results, "here", "job")

    def test_a_ratio_is_of_one_round(self):
        self.add(0, plain=10.0, Bark=5.0, null=4.0)
        self.add(1, plain=100.0, Bark=25.0, null=20.0)
        self.add(2, plain=9.0, Bark=3.0, null=3.0)
        self.assertEqual(self.rounds().ratio("plain", "Bark"), 3.0)

    def test_what_was_rejected_failed_or_is_not_whole_does_not_count(self):
        self.add(0, plain=10.0, Bark=5.0, null=4.0)
        self.add(1, rejected=True, plain=100.0, Bark=1.0, null=1.0)
        self.add(2, failed="no", plain=100.0, Bark=1.0, null=1.0)
        self.add(3, plain=100.0, Bark=1.0)
        self.assertEqual((len(self.rounds().good), self.rounds().rejected, self.rounds().ratio("plain", "Bark")), (1, 1, 2.0))

    def test_half_of_all_do_not_exceed_the_fiftieth_percentile(self):
        self.assertEqual([bark_report.percentile([4, 1, 3, 2], percent) for percent in (0, 50, 99, 100)], [1, 2, 4, 4])


if __name__ == "__main__":
    unittest.main()
