package auth

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestASurveyCountsKeys(t *testing.T) {
	d := newDesk(t, masters(t, 1))
	var all []Made
	for _, spec := range []Spec{{Role: App}, {Role: App}, {Role: Merchant, BID: 7}, {Role: Channel}, {Role: Channel}, {Role: Channel}, {Role: Ops}} {
		all = append(all, d.create(t, spec))
	}
	if _, err := d.Revoke(t.Context(), all[0].ID, "tester"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Rotate(t.Context(), all[1].ID, time.Hour, "tester"); err != nil {
		t.Fatal(err)
	}
	survey := func(m *Masters) Survey {
		t.Helper()
		s, err := NewStore(d.meta, m).Survey(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	right := func(s Survey, strange, sealed int) {
		t.Helper()
		if s.Living[App] != 2 || s.Living[Merchant] != 1 || s.Living[Channel] != 3-strange || s.Living[Ops] != 1 || s.Ending != 1 || s.Signing != 3-strange || s.Revoked != 1 ||
			len(s.Strange) != strange || len(s.Sealed) != sealed {
			t.Errorf("%d strange, %d sealed: %+v", strange, sealed, s)
		}
	}
	right(survey(d.masters), 0, 0)
	right(survey(masters(t, 2, 1)), 0, 0)
	right(survey(masters(t, 2)), 0, 3)
	right(survey(nil), 0, 3)

	d.exec(t, "UPDATE META.api_key SET secret = REVERSE(secret) WHERE id = ?", all[3].ID)
	d.exec(t, "UPDATE META.api_key SET role = 'robot' WHERE id = ?", all[4].ID)
	s := survey(d.masters)
	right(s, 1, 1)
	if !slices.Equal([]string{s.Strange[0].ID, s.Sealed[0].ID}, []string{all[4].ID, all[3].ID}) || !strings.Contains(s.Strange[0].Why.Error(), "a role is") || s.Sealed[0].Why == nil {
		t.Errorf("%+v", s)
	}

	d.exec(t, "DELETE FROM META.api_key_version")
	if _, err := d.Survey(t.Context()); err == nil || !strings.Contains(err.Error(), "somebody deleted the row of api_key_version") {
		t.Errorf("no row of versions: %v", err)
	}
	d.exec(t, "DROP TABLE META.api_key")
	if _, err := d.Survey(t.Context()); err == nil || errors.Is(err, ErrTooMany) {
		t.Errorf("no table: %v", err)
	}
}
