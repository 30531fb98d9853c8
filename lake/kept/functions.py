"""Which functions of Spark SQL a kept model may use.

The names are those of the sections of pyspark's list of functions, without the functions whose
value depends on the time, on chance, on the session or on the order of rows, and without
`window_time`, which Spark resolves only in some places of a query. What is not listed may
be a function of a user, of which nothing is known.
"""

OF_ONE_ROW = frozenset(
    "abs acos acosh add_months aggregate array array_append array_compact array_contains "
    "array_distinct array_except array_insert array_intersect array_join array_max array_min "
    "array_position array_prepend array_remove array_repeat array_size array_sort array_union "
    "arrays_overlap arrays_zip ascii asin asinh atan atan2 atanh base64 bigint bin binary "
    "bit_count bit_get bit_length bitwise_not boolean bround btrim cardinality cast cbrt ceil "
    "ceiling char char_length character_length chr coalesce collate collation concat "
    "concat_ws contains conv convert_timezone cos cosh cot crc32 create_map csc date date_add "
    "date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff "
    "datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e "
    "element_at elt encode endswith equal_null exists exp expm1 extract factorial filter "
    "find_in_set flatten float floor forall format_number format_string from_json "
    "from_unixtime from_utc_timestamp get get_json_object getbit greatest hash hex hour hypot "
    "if ifnull ilike in initcap instr int interval is_valid_utf8 isnan isnotnull isnull "
    "json_array_length json_object_keys last_day lcase least left len length levenshtein like "
    "ln locate log log10 log1p log2 lower lpad ltrim make_date make_dt_interval make_interval "
    "make_time make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 "
    "make_ym_interval map map_concat map_contains_key map_entries map_filter map_from_arrays "
    "map_from_entries map_keys map_values map_zip_with mask md5 minute month monthname "
    "months_between named_struct nanvl negate negative next_day nullif nullifzero nvl nvl2 "
    "octet_length overlay parse_url pi pmod position positive pow power printf quarter quote "
    "radians reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr "
    "regexp_like regexp_replace regexp_substr repeat replace reverse right rint rlike round "
    "rpad rtrim schema_of_json sec second sentences sequence sha sha1 sha2 shiftleft "
    "shiftright shiftrightunsigned sign signum sin sinh size slice smallint sort_array "
    "soundex split split_part sqrt startswith str_to_map string struct substr substring "
    "substring_index tan tanh time_bucket time_diff time_from_micros time_from_millis "
    "time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp "
    "timestamp_add timestamp_diff timestamp_micros timestamp_millis timestamp_seconds tinyint "
    "to_binary to_char to_date to_json to_number to_time to_timestamp to_timestamp_ltz "
    "to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar transform transform_keys "
    "transform_values translate trim trunc try_add try_cast try_divide try_element_at "
    "try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz "
    "try_mod try_multiply try_parse_url try_subtract try_to_binary try_to_date try_to_number "
    "try_to_time try_to_timestamp try_url_decode try_validate_utf8 typeof ucase unbase64 "
    "unhex unix_date unix_micros unix_millis unix_seconds unix_timestamp upper url_decode "
    "url_encode validate_utf8 weekday weekofyear width_bucket window xxhash64 "
    "year zeroifnull zip_with".split()
)

AGGREGATES = frozenset(
    "approx_count_distinct approx_percentile avg bit_and bit_or bit_xor bool_and bool_or corr "
    "count count_if covar_pop covar_samp every kurtosis max max_by mean median min min_by "
    "percentile percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy "
    "regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy skewness some "
    "std stddev stddev_pop stddev_samp sum try_avg try_sum var_pop var_samp variance".split()
)

OF_A_WINDOW = frozenset(
    "cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number".split()
)

GENERATORS = frozenset(
    "explode explode_outer inline inline_outer posexplode posexplode_outer stack".split()
)

# Their arrays have no order, so `query.py` allows them only where the order does not matter.
UNORDERED = frozenset({"collect_set", "collect_list", "array_agg"})
