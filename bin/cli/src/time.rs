//! Dates as commands print them (in UTC: the daemon and its users may sit in different zones).

/// `Sat Nov 21 22:00 2026`, as `zfs get creation` prints it.
pub fn short(seconds: i64) -> String {
    let date = Date::from_epoch(seconds);
    format!("{} {} {:>2} {:>2}:{:02} {}", date.weekday, date.month_name(), date.day, date.hour, date.minute, date.year)
}

/// `Sat Nov 21 22:00:00 2026`, as scan lines print it.
pub fn long(seconds: i64) -> String {
    let date = Date::from_epoch(seconds);
    format!("{} {} {:>2} {:02}:{:02}:{:02} {}", date.weekday, date.month_name(), date.day, date.hour, date.minute, date.second, date.year)
}

/// `2026-11-21.22:00:00`, as history prints it.
pub fn history(seconds: i64) -> String {
    let date = Date::from_epoch(seconds);
    format!("{}-{:02}-{:02}.{:02}:{:02}:{:02}", date.year, date.month, date.day, date.hour, date.minute, date.second)
}

struct Date {
    year: i64,
    month: u32,
    day: u32,
    hour: i64,
    minute: i64,
    second: i64,
    weekday: &'static str,
}

impl Date {
    /// Civil date (UTC) of seconds since the epoch, by the usual era arithmetic.
    fn from_epoch(seconds: i64) -> Date {
        let days = seconds.div_euclid(86400);
        let rest = seconds.rem_euclid(86400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_index = (5 * day_of_year + 2) / 153;
        let month = if month_index < 10 { month_index + 3 } else { month_index - 9 } as u32;
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][days.rem_euclid(7) as usize];
        let day = (day_of_year - (153 * month_index + 2) / 5 + 1) as u32;
        Date { year, month, day, hour: rest / 3600, minute: rest / 60 % 60, second: rest % 60, weekday }
    }

    fn month_name(&self) -> &'static str {
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][self.month as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_across_leap_years_and_before_the_epoch() {
        assert_eq!(long(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(long(951_782_400), "Tue Feb 29 00:00:00 2000");
        assert_eq!(long(-1), "Wed Dec 31 23:59:59 1969");
        assert_eq!(history(1_795_298_460), "2026-11-21.22:01:00");
    }
}
