//! A time as C's `ctime` prints it, in UTC: what `zdb` shows beside a timestamp.

/// "Sat Nov 21 22:43:46 2026" for seconds since 1970.
pub fn ctime(seconds: u64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // The calendar repeats every 400 years (146 097 days); years begin in March so that the leap day is a year's last.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = (march_month + 2) % 12;
    let year = era * 400 + year_of_era + u64::from(month < 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{} {} {day:2} {hour:02}:{minute:02}:{:02} {year}", DAYS[(days % 7) as usize], MONTHS[month as usize], second % 60)
}

#[cfg(test)]
mod tests {
    #[test]
    fn dates_are_cs() {
        assert_eq!(super::ctime(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(super::ctime(1_795_301_026), "Sat Nov 21 22:43:46 2026");
        assert_eq!(super::ctime(951_782_399), "Mon Feb 28 23:59:59 2000");
        assert_eq!(super::ctime(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert!(!super::ctime(u64::MAX).is_empty());
    }
}
