# Five hundred random models under four layouts each, others than those of unit/test_random_plans; and the five best plans found for five hundred more.
CMOCKA_MESSAGE_OUTPUT=TAP "$ASAN/tests/unit/test_random_plans" 500 1000
